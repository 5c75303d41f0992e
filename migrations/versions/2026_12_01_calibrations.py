"""Calibration sets, their observations and fits.

Revision ID: 0003
Revises: 0002
"""
import sqlalchemy as sa
from alembic import op

revision = '0003'
down_revision = '0002'
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table('calibration_sets',
    sa.Column('id', sa.String(length=32), nullable=False),
    sa.Column('owner', sa.String(length=64), nullable=False),
    sa.Column('name', sa.String(length=253), nullable=False),
    sa.Column('revision', sa.Integer(), nullable=False),
    sa.Column('version', sa.String(length=64), nullable=True),
    sa.Column('account', sa.LargeBinary(), nullable=True),
    sa.Column('created_ms', sa.BigInteger(), nullable=False),
    sa.Column('changed_ms', sa.BigInteger(), nullable=False),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_calibration_sets')),
    sa.UniqueConstraint('owner', 'name', name=op.f('uq_calibration_sets_owner_name'))
    )
    op.create_table('calibration_fits',
    sa.Column('set_id', sa.String(length=32), nullable=False),
    sa.Column('version', sa.String(length=64), nullable=False),
    sa.Column('cost_model', sa.String(length=64), nullable=False),
    sa.Column('calibration', sa.LargeBinary(), nullable=False),
    sa.Column('created_ms', sa.BigInteger(), nullable=False),
    sa.ForeignKeyConstraint(['set_id'], ['calibration_sets.id'], name=op.f('fk_calibration_fits_set_id'), ondelete='CASCADE'),
    sa.PrimaryKeyConstraint('set_id', 'version', name=op.f('pk_calibration_fits'))
    )
    op.create_table('observations',
    sa.Column('id', sa.String(length=32), nullable=False),
    sa.Column('set_id', sa.String(length=32), nullable=False),
    sa.Column('request', sa.LargeBinary(), nullable=False),
    sa.Column('created_ms', sa.BigInteger(), nullable=False),
    sa.ForeignKeyConstraint(['set_id'], ['calibration_sets.id'], name=op.f('fk_observations_set_id'), ondelete='CASCADE'),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_observations'))
    )
    with op.batch_alter_table('observations', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_observations_set_id'), ['set_id'], unique=False)


def downgrade() -> None:
    with op.batch_alter_table('observations', schema=None) as batch_op:
        batch_op.drop_index(batch_op.f('ix_observations_set_id'))

    op.drop_table('observations')
    op.drop_table('calibration_fits')
    op.drop_table('calibration_sets')
